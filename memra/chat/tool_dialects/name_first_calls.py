"""Calls as a name and then the JSON of the arguments, with markup around both.

Trade: the second half of such a call, for every dialect that has it. It refuses to know the markup.
"""

from memra.chat.tool_dialects.json_text import pass_arguments
from memra.chat.tool_dialects.reading import Reading, Script


def read_arguments(reading: Reading, name: str) -> Script[None]:
    """Begin the call of a tool, take its arguments and end it.

    Raises:
        MalformedCallError: the tool is not declared, or its arguments are no JSON object.
        AnswerEndedError: the answer ends before they are complete.
    """
    reading.begin(name)
    yield from reading.skip_space()
    yield from pass_arguments(reading, reading.argue)
    reading.end()
