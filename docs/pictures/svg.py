"""Draws boxes, arrows and words as SVG that is read in light and in dark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape, quoteattr

# Paper, ink, quiet ink, and a fill and line for each kind of box.
LIGHT: Final = {
    "paper": "#ffffff", "ink": "#1a1c1e", "quiet": "#50565c", "line": "#50565c",
    "ours": "#dcebfa", "device": "#fbe7cf", "yours": "#e0f1dd", "bad": "#f9dcdc",
}  # fmt: skip
DARK: Final = {
    "paper": "#17191c", "ink": "#eceff1", "quiet": "#aeb6bd", "line": "#aeb6bd",
    "ours": "#1d3a57", "device": "#553a17", "yours": "#21442a", "bad": "#5c2528",
}  # fmt: skip
KINDS: Final = ("ours", "device", "yours", "bad")
LETTER: Final = 7.3  # width of one, at most on average, in pixels
SIZE: Final = 14
TIP: Final = """\
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"
 markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" class="head"/>
</marker></defs>"""


def _style() -> str:
    def rules(colours: dict[str, str]) -> str:
        made = f".paper{{fill:{colours['paper']}}}text{{fill:{colours['ink']}}}"
        made += f".quiet{{fill:{colours['quiet']}}}.head{{fill:{colours['line']}}}"
        made += (
            f".line,.box{{stroke:{colours['line']}}}.over{{stroke:{colours['paper']}}}"
        )
        return made + "".join(f".{kind}{{fill:{colours[kind]}}}" for kind in KINDS)

    return (
        f"text{{font:{SIZE}px system-ui,sans-serif}}.strong{{font-weight:600}}"
        ".over{paint-order:stroke;stroke-width:5px;stroke-linejoin:round}"
        ".wide{stroke-width:11px}"
        ".line{fill:none;stroke-width:1.5}.dashed{stroke-dasharray:5 4}"
        f"{rules(LIGHT)}@media (prefers-color-scheme:dark){{{rules(DARK)}}}"
    )


@dataclass(slots=True)
class Picture:
    """What is drawn, in the order it was asked for."""

    width: int
    height: int
    title: str
    says: str
    parts: list[str] = field(default_factory=list)

    def words(
        self, x: float, y: float, text: str, *, at: str = "start", of: str = ""
    ) -> None:
        """A line of text; ``at`` is its anchor."""
        mark = f' class="{of}"' if of else ""
        anchor = "" if at == "start" else f' text-anchor="{at}"'
        length = len(text) * LETTER
        left = x - {"start": 0.0, "middle": length / 2, "end": length}[at]
        if left < 0 or left + length > self.width:
            raise ValueError(f"{self.title}: no room for {text!r}")
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}"{anchor}{mark}>{escape(text)}</text>'
        )

    def box(
        self, x: float, y: float, w: float, h: float, text: str, kind: str = "ours"
    ) -> None:
        """A box with words in its middle, a line of them for each line."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5"'
            f' class="box {kind}"/>'
        )
        lines = text.split("\n") if text else []
        top = y + h / 2 - (len(lines) - 1) * 9 + 5
        for n, line in enumerate(lines):
            if len(line) * LETTER > w - 4:
                raise ValueError(f"{self.title}: {line!r} is too long for its box")
            of = "strong" if n == 0 and len(lines) > 1 else ""
            self.words(x + w / 2, top + 18 * n, line, at="middle", of=of)

    def arrow(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        text: str = "",
        *,
        dashed: bool = False,
    ) -> None:
        """An arrow, with words above its middle, or on it where it is no level one."""
        way = "dashed line" if dashed else "line"
        self.parts.append(
            f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{way}"'
            ' marker-end="url(#tip)"/>'
        )
        if text:
            level = y1 == y2
            y = y1 - 6 if level else (y1 + y2) / 2 + 5
            of = "quiet over" if level else "quiet over wide"  # the line ends for it
            self.words((x1 + x2) / 2, y, text, at="middle", of=of)

    def rule(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """A thin dashed line."""
        self.parts.append(
            f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="dashed line"/>'
        )

    def svg(self) -> str:
        """All of it."""
        size = f'width="{self.width}" height="{self.height}"'
        view = f'viewBox="0 0 {self.width} {self.height}"'
        aloud = f'role="img" aria-label={quoteattr(self.title)}'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} {aloud}>',
                f"<title>{escape(self.title)}</title>",
                f"<desc>{escape(self.says)}</desc>",
                f"<style>{_style()}</style>",
                TIP,
                f'<rect {size} class="paper"/>',
                *self.parts,
                "</svg>\n",
            ]
        )
