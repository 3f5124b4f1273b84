"""``ntkit fetch``: image sets as the files that experiments use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ntkit._src import datasets
from ntkit.errors import InputError

from ._console import Json, check_out, command, emit

_UCI = "http://persoal.citius.usc.es/manuel.fernandez.delgado/papers/jmlr/data.tar.gz"


@command("ntkit fetch cifar10 --out cifar.npz", "ntkit fetch celeba --folder celeba/ --out faces.npz")
def fetch(
    name: Annotated[
        Literal["cifar10", "svhn", "stl10", "mnist", "fashion_mnist", "celeba", "uci"],
        typer.Argument(help="The data set."),
    ],
    out: Annotated[Path, typer.Option(help="The .npz file to write, for ntkit run NAME --data.")],
    folder: Annotated[
        Path | None, typer.Option(help="A folder that already holds its files; default: download them.")
    ] = None,
    attribute: Annotated[str, typer.Option(help="For CelebA: the attribute to classify.")] = "Eyeglasses",
    json: Json = False,
) -> None:
    """Fetch an image set for ntkit run --data.

    Original files are downloaded once to pooch's cache and checked by sha256, or read from --folder. CelebA's licence allows
    no download by a program: it needs --folder. The UCI tables have no published checksum: the command says how to get them.
    """
    if name == "uci":
        raise InputError(
            "uci is not downloaded: its publishers give no checksum of the archive, so ntkit could not tell whether it is "
            f"the right one. Unpack {_UCI} yourself, and pass the folder: ntkit run uci --data FOLDER."
        )
    if out.suffix != ".npz":
        raise InputError(f"--out must end in .npz. Got {out}.")
    check_out(out)
    if name == "celeba":
        if folder is None:
            raise InputError(
                "celeba needs --folder with img_align_celeba/ and list_attr_celeba.txt, from its authors' page."
            )
        images = datasets.load_celeba(folder, attribute)
    else:
        try:
            images = getattr(datasets, f"load_{name}")(folder)
        except InputError as error:
            raise InputError(str(error).replace("folder=", "--folder")) from error
    images.save(out)
    train, test = len(images.y_train), len(images.y_test)
    result = {"file": str(out), "train": train, "test": test, "classes": list(images.classes)}
    emit(result, json, f"{out}: {train:,} training and {test:,} test images, {len(images.classes)} classes")
