"""The model's own tokenizer: byte-level BPE with the splitting rule of Ling-3.0 and the special tokens at the end."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .chat_format import SPECIAL_TOKENS

# Ling-3.0's expression, with its possessive quantifiers.
SPLIT = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
VOCABULARY_SIZE = 4096
END_OF_TURN, PADDING = "<|role_end|>", "<|endoftext|>"


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The number of a token that must be there."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise SystemExit(f"the tokenizer has no {token}")
    return int(number)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Learn the merges from `texts`; the result has exactly VOCABULARY_SIZE entries."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        max_token_length=16,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    if tokenizer.get_vocab_size() != VOCABULARY_SIZE:
        raise SystemExit(f"the corpus gave {tokenizer.get_vocab_size()} tokens, not {VOCABULARY_SIZE}: too small")
    return tokenizer
