// Arrays that come from Python: checked, held while a kernel works on them, and named in every complaint.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>
#include <string>

namespace ling3 {

namespace nb = nanobind;

struct ElementType {
  const char* name;
  const char* codes;  // the letters of the buffer protocol that mean this type
  int64_t size;
};

constexpr ElementType float32{"float32", "f", 4};
constexpr ElementType int8{"int8", "b", 1};
constexpr ElementType uint8{"uint8", "B", 1};
constexpr ElementType uint16{"uint16", "H", 2};
constexpr ElementType int32{"int32", "il", 4};
constexpr ElementType int64{"int64", "lq", 8};

[[noreturn]] void refuse(const std::string& message);  // ValueError

// A C-contiguous array of one type and rank. The buffer protocol is used directly: it takes read-only arrays, and it is
// several times cheaper than DLPack.
class Array {
 public:
  enum Access { reads, writes };

  Array(nb::handle object, const char* name, const ElementType& type, int rank, Access access = reads);
  ~Array() { PyBuffer_Release(&view_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  int64_t shape(int axis) const { return view_.shape[axis]; }
  template <class Element>
  Element* data() const {
    return static_cast<Element*>(view_.buf);
  }

  // Refuses any other shape; -1 leaves an axis free.
  void expect(std::initializer_list<int64_t> shape) const;
  // Refuses with "name: what, got [shape]".
  [[noreturn]] void refuse_shape(const std::string& what) const;

 private:
  const char* name_;
  Py_buffer view_;
};

}  // namespace ling3
