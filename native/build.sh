#!/bin/sh
# Builds ling3/_native*.so in place, for work in a checkout. PYTHON chooses the interpreter, BUILD_DIR the build folder.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(command -v "${PYTHON:-python3}")
build=${BUILD_DIR:-$root/build/native}
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$python" >/dev/null
cmake --build "$build"
for library in "$build"/_native*.so; do
  # A new file, not new bytes in the old one: a running process may have that mapped.
  cp "$library" "$root/ling3/.native.part"
  mv -f "$root/ling3/.native.part" "$root/ling3/$(basename "$library")"
done
