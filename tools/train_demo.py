"""Train the bundled demonstration model from nothing.

    python -m venv .venv
    .venv/bin/pip install torch==2.13.0 tokenizers safetensors numpy jinja2
    .venv/bin/python -m tools.train_demo --out DIR --minutes 75        (from the root of the repository)

Fetches two small-talk packages with pip, writes its own conversations (tools/demo/), learns a tokenizer, trains the
network with one process a core until the time is over, and leaves a Hugging Face folder in the public layout of
Ling-3.0 in DIR, renewed every few minutes. `ling3 convert DIR ling3/data/ling3-demo.l3r` makes the package, and
`python -m tools.demo.evaluation DIR` asks the model its 200 questions.

The conversations and the first weights depend on --seed only. How far the training gets in its time depends on the
machine, so two runs are alike but not equal.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from torch import multiprocessing

from tools.demo.dialogue import Writer
from tools.demo.small_talk import SmallTalk, collect, fetch
from tools.demo.training import Plan, train_process
from tools.demo.vocabulary import train_tokenizer

# glibc would give every large tensor back to the system at once and fault its pages in again for the next one.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592",
          "MALLOC_TOP_PAD_": "268435456"}
TOKENIZER_CONVERSATIONS = 25_000
TOKENIZER_REMARKS = 3_000


def tokenizer_texts(talk: SmallTalk, seed: int) -> list[str]:
    """What the tokenizer is learned from: our own conversations and some of the small talk."""
    writer = Writer(seed, talk)
    conversations = (writer.conversation() for _ in range(TOKENIZER_CONVERSATIONS))
    texts = [str(message["content"]) for conversation in conversations for message in conversation.messages]
    return texts + talk.remarks[:TOKENIZER_REMARKS]


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    parser.add_argument("--minutes", type=float, default=75.0, help="time for everything together")
    parser.add_argument("--seed", type=int, default=3588)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--start", type=Path, help="go on from this folder and with its tokenizer")
    options = parser.parse_args()
    started = time.time()
    os.environ |= MALLOC
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        talk = collect(fetch(work))
        if options.start:
            shutil.copy(options.start / "tokenizer.json", work)
        else:
            train_tokenizer(tokenizer_texts(talk, options.seed)).save(str(work / "tokenizer.json"))
        print(f"prepared in {time.time() - started:.0f} s", flush=True)
        plan = Plan(options.out, work, options.seed, options.minutes * 60, options.processes, started,
                    options.start)
        multiprocessing.spawn(train_process, args=(plan, talk), nprocs=options.processes)


if __name__ == "__main__":
    main()
