"""Markdown pages: width, links, and no paths of a machine."""

from collections.abc import Iterator
from pathlib import Path
import re

CHECKOUT = Path(__file__).parent.parent
PAGES = [
    *(CHECKOUT / name for name in ('README.md', 'CONTRIBUTING.md', 'tools/demo/README.md')),
    *sorted((CHECKOUT / 'docs').glob('*.md')),
]
MAX_COLUMNS = 140
GENERATED = re.compile(r'<!-- (parameters:\w+) -->\n.*?<!-- /\1 -->', re.DOTALL)
LINK = re.compile(r'!?\[[^\]]*\]\(([^)\s]+)\)')
#: Folders of one person's or one CI's machine; documentation uses ~ or relative paths.
MACHINE_PATH = re.compile(r'(?<![\w.~])/(?:home|Users|root|work|workspace|mnt)/\w')


def prose(page: Path) -> str:
    """Return the hand-written part of a page."""
    text = page.read_text()
    return '' if page.name == 'parameters.md' else GENERATED.sub('', text)


def anchors(page: Path) -> Iterator[str]:
    """Yield the anchors of a page's headings, as GitHub and MyST compute them."""
    for heading in re.findall(r'^#+ (.+)$', page.read_text(), flags=re.MULTILINE):
        yield re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page whose file or heading does not exist."""
    found = []
    for link in LINK.findall(page.read_text()):
        if re.match(r'\w+:', link):
            continue
        name, _, anchor = link.partition('#')
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def in_pages(find) -> dict[str, list]:
    """Return what a function finds in each page, without those where it is nothing."""
    found = {str(page.relative_to(CHECKOUT)): find(page) for page in PAGES}
    return {name: each for name, each in found.items() if each}


def test_lines_are_short():
    assert (
        in_pages(lambda page: [x for x in prose(page).splitlines() if len(x) > MAX_COLUMNS]) == {}
    )


def test_links_resolve_and_none_is_a_path_of_a_machine():
    assert in_pages(broken_links) == {}
    assert in_pages(lambda page: MACHINE_PATH.findall(page.read_text())) == {}


def test_every_page_is_in_the_index():
    toctree = (CHECKOUT / 'docs/index.md').read_text().splitlines()
    assert {page.stem for page in (CHECKOUT / 'docs').glob('*.md')} - {'index', *toctree} == set()


def test_pictures_of_the_gallery_are_shown_and_small():
    pictures = sorted((CHECKOUT / 'docs/images/gallery').iterdir())
    shown = re.findall(r'images/gallery/([\w.]+)', (CHECKOUT / 'docs/gallery.md').read_text())
    assert sorted(shown) == [each.name for each in pictures]
    assert [each.name for each in pictures if each.stat().st_size > 150_000] == []


def test_every_module_folder_and_page_named_in_the_readme_exists():
    text = (CHECKOUT / 'README.md').read_text()
    named = re.findall(r'`((?:trt_ros|config|docs|test)/[\w./]+)`', text)
    assert named and [name for name in named if not (CHECKOUT / name).exists()] == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / 'page.md'
    page.write_text('# A heading\n[a](#a-heading) [b](#b) [c](missing.md) [d](https://x.org)\n')
    assert broken_links(page) == ['#b', 'missing.md']
