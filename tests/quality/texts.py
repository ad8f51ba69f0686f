"""Test and calibration texts, from Debian packages that run.sh unpacks: prose (anarchism), Python (libpython3.11-stdlib).

Profiles are made from CALIBRATION alone, of which nothing is in a test document: licences and other Python modules.
"""

import hashlib
import html
import pathlib
import re

import numpy as np

PROSE = ["secA1", "secA3", "secB1", "secB4", "secC1", "secC2", "secC7", "secD1", "secD5", "secE1", "secF1", "secF8", "secG2", "secH1", "secH3", "secI1"]  # fmt: skip
CODE = ["_pydecimal", "argparse", "ast", "configparser", "difflib", "doctest", "enum", "inspect", "mailbox", "optparse", "pathlib", "pdb", "pickle", "subprocess", "turtle", "zipfile"]  # fmt: skip
HAYSTACK = ["secA2", "secA4", "secA5", "secB3", "secB7", "secD3", "secF3", "secG3", "secH2", "secI2", "secI3", "secI4", "secI5", "secI8", "secJ1", "secJ5"]  # fmt: skip
CALIBRATION = ["licence:GPL-3", "licence:GFDL-1.3", "code:dataclasses", "code:tarfile", "licence:Artistic", "code:heapq"]


class Texts:
    def __init__(self, folder):
        """`folder`: where the packages were unpacked."""
        self.prose_folder = folder / "usr/share/doc/anarchism/html"
        self.code_folder = folder / "usr/lib/python3.11"
        self.licence_folder = pathlib.Path("/usr/share/common-licenses")  # every Debian system has them
        self.seen = hashlib.sha256()

    def text(self, kind, name):
        if kind == "prose":
            text = re.sub(r"<[^>]*>", "", (self.prose_folder / f"{name}.html").read_text(errors="replace"))
            text = re.sub(r"[ \t]+", " ", html.unescape(text))
            text = re.sub(r"\s*\n\s*\n\s*", "\n\n", text)[500:]  # behind the page's head
        elif kind == "code":
            text = (self.code_folder / f"{name}.py").read_text()[2000:]  # behind licence and imports
        else:
            text = " ".join((self.licence_folder / name).read_text().split())[1000:]
        self.seen.update(text.encode())
        return text

    def tokens(self, model, kind, name, length):
        """The first `length` tokens of a document."""
        ids = model.encode(self.text(kind, name)[: length * 8], bos=True)
        if len(ids) < length:
            raise SystemExit(f"{kind}:{name} has {len(ids)} tokens, {length} are needed")
        return ids[:length]

    def documents(self, model, count, length):
        """[count, length] token ids, prose and code by turns."""
        if count > len(PROSE) + len(CODE):
            raise SystemExit(f"there are {len(PROSE) + len(CODE)} test documents")
        kinds = [(kind, names[i // 2]) for i in range(count) for kind, names in [(("prose", PROSE), ("code", CODE))[i % 2]]]
        return np.array([self.tokens(model, kind, name, length) for kind, name in kinds])

    def calibration(self, model, count, length):
        return {x: self.tokens(model, *x.split(":"), length) for x in CALIBRATION[:count]}

    def digest(self):
        """Of everything read so far."""
        return self.seen.hexdigest()[:16]
