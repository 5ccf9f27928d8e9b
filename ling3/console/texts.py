"""Every sentence the console says, one table per language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Texts:
    """The messages of one language; the parts of the figures line are format strings."""

    banner: str
    help: str
    server_goes_on: str
    history_cleared: str
    run_cancelled: str
    nothing_runs: str
    thinking_on: str
    thinking_off: str
    thinking_usage: str
    reasoning_heading: str
    answer_heading: str
    answer_cancelled: str
    how_to_quit: str
    context_full: str
    first_token: str
    decode_rate: str
    token_count: str
    finish_reason: str
    separator: str
    line_too_long: str
    input_empty: str
    input_not_utf8: str
    input_too_long: str


ENGLISH = Texts(
    banner="Chat with the model. Commands: /help /reset /think on|off /cancel /quit",
    help="""\
/reset         forget the conversation
/think on|off  let the model reason before it answers, or not
/cancel        cancel an answer that runs for another client
/quit          end the console and the server
/help          show this list
Enter sends, Alt-Enter starts a new line, pasted lines stay one message.
Ctrl-C stops the answer, or clears the line. Esc clears the line.
Ctrl-D on an empty line leaves the console; the server goes on.""",
    server_goes_on="Console ended. The server goes on; Ctrl-C ends it.",
    history_cleared="The conversation is forgotten.",
    run_cancelled="The running answer is cancelled.",
    nothing_runs="No answer is running.",
    thinking_on="Thinking is on.",
    thinking_off="Thinking is off.",
    thinking_usage="Say /think on or /think off.",
    reasoning_heading="[thinking]",
    answer_heading="[answer]",
    answer_cancelled="Cancelled. This question and its answer are not kept.",
    how_to_quit="To leave, type /quit.",
    context_full="The conversation no longer fits the context; /reset starts a new one.",
    first_token="first token {:.0f} ms",
    decode_rate="decode {:.1f} tok/s",
    token_count="{} tok",
    finish_reason="finish: {}",
    separator=", ",
    line_too_long="the line is longer than this terminal mode can carry ({} bytes); "
    "break it into lines, or install prompt_toolkit",
    input_empty="standard input has no text",
    input_not_utf8="standard input is not UTF-8 text (byte {})",
    input_too_long="standard input is longer than {} MiB",
)

CHINESE = Texts(
    banner="与模型对话。命令：/help /reset /think on|off /cancel /quit",
    help="""\
/reset         忘记此前的对话
/think on|off  回答前是否先思考
/cancel        取消其他客户端正在生成的回答
/quit          结束控制台和服务
/help          显示本列表
Enter 发送，Alt-Enter 换行，粘贴的多行文字是一条消息。
Ctrl-C 停止回答，或清空当前输入。Esc 清空当前输入。
空行上按 Ctrl-D 离开控制台，服务继续运行。""",
    server_goes_on="控制台已结束，服务继续运行；按 Ctrl-C 结束服务。",
    history_cleared="已忘记此前的对话。",
    run_cancelled="已取消正在生成的回答。",
    nothing_runs="当前没有正在生成的回答。",
    thinking_on="思考已开启。",
    thinking_off="思考已关闭。",
    thinking_usage="请输入 /think on 或 /think off。",
    reasoning_heading="[思考]",
    answer_heading="[回答]",
    answer_cancelled="已取消，这一问一答不会保留。",
    how_to_quit="要退出请输入 /quit。",
    context_full="对话已超出上下文长度；用 /reset 开始新的对话。",
    first_token="首词元 {:.0f} ms",
    decode_rate="生成 {:.1f} 词元/s",
    token_count="{} 词元",
    finish_reason="结束原因：{}",
    separator="，",
    line_too_long="这一行超出了当前终端模式的上限（{} 字节）；请分成多行，或安装 prompt_toolkit",
    input_empty="标准输入没有文字",
    input_not_utf8="标准输入不是 UTF-8 文本（第 {} 字节）",
    input_too_long="标准输入超过 {} MiB",
)


def choose_texts(environ: Mapping[str, str], encoding: str) -> Texts:
    """The language of the locale's messages: LC_ALL, then LC_MESSAGES, then LANG.

    `encoding` is the one of the terminal: where it has no Chinese characters, the console is
    English whatever the locale says.
    """
    names = (environ.get(variable) for variable in ("LC_ALL", "LC_MESSAGES", "LANG"))
    locale = next((name for name in names if name), "")
    if locale.lower().partition(".")[0].replace("-", "_").split("_")[0] != "zh":
        return ENGLISH
    try:
        CHINESE.banner.encode(encoding)
    except UnicodeEncodeError:
        return ENGLISH
    return CHINESE
