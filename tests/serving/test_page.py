"""The page in a real browser: a translation, its hypotheses, the attention of each head."""

import shutil
import subprocess
from urllib.parse import quote

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((name for name in BROWSERS if shutil.which(name)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"needs one of {BROWSERS}")


def page(port: int, text: str, folder) -> str:
    """The document after the page has translated the text."""
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
        "--virtual-time-budget=20000", f"--user-data-dir={folder}",
        f"http://127.0.0.1:{port}/#{quote(text)}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_text_is_translated_and_its_alignment_drawn(port, translator, trained_run, tmp_path):
    text = trained_run.lines("train.en")[0]
    html = page(port, text, tmp_path)
    found = translator.translate(text)
    assert f'aria-live="polite">{found}</div>' in html
    hypotheses = html[html.index('id="nbest"') : html.index("<script>")]
    assert hypotheses.count("<tr>") == 4
    pieces = translator.tokenizer.tokenize([text, found]).row_lengths().numpy()
    assert html.count('class="aligned"') == pieces[1]
    assert html.count('style="--weight: ') >= (pieces[0] + 1) * (pieces[1] + 1)
    assert html.count('type="radio"') == 1 + translator.model.config.num_heads


def test_text_is_never_interpreted_as_markup(port, tmp_path):
    html = page(port, "<img src=x onerror=document.title='broken'>", tmp_path)
    assert "<title>small</title>" in html
    assert "<img" not in html
