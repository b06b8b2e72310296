"""The pictures of docs/report.md, taken of a run's own report in headless Chromium: `python docs/draw_report.py RUN` (`make pictures`).

The report is written anew; nothing in the pictures is made up. Run where `runs/` lies, so that the page names the run as a reader would.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))

from chromium import Chromium  # noqa: E402

from grpo_cli.findings.run_data import arms_of, collect  # noqa: E402
from grpo_cli.jobs.report import write_report  # noqa: E402
from grpo_cli.run.find import find_run  # noqa: E402

WIDTH, MARGIN = 1000, 12
TOP = "document.querySelector('figure').getBoundingClientRect().bottom + scrollY"
SECTION = "document.querySelector('[data-reader]').closest('section').getBoundingClientRect().top + scrollY"
GROUP = "document.querySelector('.reader details').getBoundingClientRect().bottom + scrollY"


def crop(browser: Chromium, out: Path, top: float, bottom: float) -> None:
    """A PNG of the page between two heights."""
    clip = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top, "scale": 1}
    shot = browser.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    out.write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    run = find_run(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        page = write_report(arms_of([collect(run)]), Path(place) / "report.html")
        browser = Chromium(Path(place) / "profile")
        try:
            browser.open(page, width=WIDTH)
            browser.run("plots.forEach(draw)")
            browser.wait("document.querySelector('.plot svg') !== null")
            crop(browser, ROOT / "docs" / "report.png", 0, float(browser.run(TOP)) + MARGIN)
            browser.wait("document.querySelector('.reader details') !== null")
            browser.run("document.querySelector('.reader details').open = true")
            browser.wait("document.querySelector('.reader details .sample') !== null")
            top, bottom = float(browser.run(SECTION)), float(browser.run(GROUP))
            crop(browser, ROOT / "docs" / "report-samples.png", top, bottom + MARGIN)
        finally:
            browser.close()


if __name__ == "__main__":
    main()
