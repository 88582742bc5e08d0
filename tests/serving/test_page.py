"""The page in a browser: translations, hypotheses, the attention of each head."""

import re
import shutil
import subprocess
from urllib.parse import quote

import pytest
from http_calls import call

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((name for name in BROWSERS if shutil.which(name)), None)


def page(port: int, text: str, folder) -> str:
    """The document after the page has translated the text."""
    if BROWSER is None:
        pytest.skip(f"needs one of {BROWSERS}")
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
    shown = re.search('aria-live="polite"><span>(.*?)</span></div>', html)[1]
    assert re.sub("<[^>]*>", "", shown) == found
    assert shown.count('<mark title="') == shown.count("--share: ") == len(found.split())
    hypotheses = html[html.index('id="nbest"') : html.index('id="alignment"')]
    assert hypotheses.count("<tr>") == 4
    pieces = translator.tokenizer.tokenize([text, found]).row_lengths().numpy()
    assert html.count('class="aligned"') == pieces[1]
    assert html.count('style="--weight: ') >= (pieces[0] + 1) * (pieces[1] + 1)
    assert html.count('type="radio"') == 1 + translator.model.config.num_heads


def test_a_pasted_document_is_translated(port, translator, trained_run, tmp_path):
    """With more sentences than a request to the model may have, and what is kept between."""
    lines = trained_run.lines("train.en")[:40]
    html = page(port, "\n\n".join(f" - {line}" for line in lines), tmp_path)
    shown = html[html.index('aria-live="polite"') : html.index('id="others"')]
    assert shown.count('aria-pressed="true"') == 1
    found = re.sub("<[^>]*>", "", shown.partition(">")[2].partition("</div>")[0])
    assert found == "\n\n".join(f" - {one}" for one in translator.translate(lines))


def test_the_page_hides_empty_answers(port, tmp_path):
    html = page(port, "", tmp_path)
    assert 'id="model">version 1</p>' in html
    hidden = ("answer", "others", "alignment")
    assert [name for name in hidden if not re.search(f'id="{name}" hidden', html)] == []


def test_text_is_never_interpreted_as_markup(port, tmp_path):
    html = page(port, "<img src=x onerror=document.title='broken'>", tmp_path)
    assert "<title>small</title>" in html
    assert "<img" not in html


def test_the_page_connects_only_to_this_server(port):
    status, headers, html = call(port, "GET", "/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", html)
    assert 'const facts = {"name": "small", ' in html
