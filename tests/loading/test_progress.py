import io
import sys
import threading

import pytest

from memra.loading.progress import byte_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_no_thread_stays(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    before = threading.active_count()
    with byte_progress("model.gguf", 2000, shown=True) as advance:
        advance(1000)
        advance(1000)
        assert threading.active_count() == before
    assert "model.gguf" in terminal.getvalue()
    assert "\r" in terminal.getvalue()


def test_elsewhere_there_is_one_line_at_start_and_end(capsys):
    with byte_progress("model.gguf", 2000, shown=True) as advance:
        advance(2000)
    assert capsys.readouterr() == ("", "model.gguf: 2,000 bytes\nmodel.gguf: done\n")


def test_a_failure_is_not_reported_as_done(capsys):
    with pytest.raises(ValueError, match="broken"), byte_progress("model.gguf", 2000, shown=True):
        raise ValueError("broken")
    assert "done" not in capsys.readouterr().err


def test_silence_is_kept_when_asked_for(capsys):
    with byte_progress("model.gguf", 2000, shown=False) as advance:
        advance(2000)
    assert capsys.readouterr() == ("", "")
