import io

from memra.cli_bench.progress import Progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_file_gets_plain_lines():
    stream = io.StringIO()
    progress = Progress(stream)
    progress.expect(2)
    progress.step("one")
    progress.step("two")
    progress.finish()
    assert stream.getvalue() == "[1/2] one\n[2/2] two\n"


def test_a_terminal_gets_one_line_that_is_rewritten_and_taken_away():
    stream = _Terminal()
    progress = Progress(stream)
    progress.expect(1)
    progress.step("one" + "." * 300)
    progress.finish()
    assert "\n" not in stream.getvalue()
    first, second = stream.getvalue().split("\r\x1b[2K")[1:]
    assert first.startswith("[1/1] one")
    assert len(first) <= 100
    assert second == ""


def test_more_steps_than_expected_never_read_three_of_two():
    stream = io.StringIO()
    progress = Progress(stream)
    progress.expect(1)
    progress.step("one")
    progress.step("two")
    assert stream.getvalue().endswith("[2/2] two\n")
