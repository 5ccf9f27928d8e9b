"""Messages to token ids, token ids to text; knows nothing of weights."""

from ling3.text.chat import ChatText
from ling3.text.output import Channel, Piece, ToolCall
from ling3.text.stream import OutputFilter
from ling3.text.template import ChatTemplate, builtin_chat_template
from ling3.text.tokenizer import Tokenizer

__all__ = [
    "Channel",
    "ChatTemplate",
    "ChatText",
    "OutputFilter",
    "Piece",
    "Tokenizer",
    "ToolCall",
    "builtin_chat_template",
]
