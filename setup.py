"""What pyproject.toml cannot say: pipelines, stages, alert rules and dashboard are installed inside the package.

`mbd pipeline` finds the packages `pipelines` and `components`, `mbd deploy` the files of `deploy`, and `mbd init` those
of DVC in the folder `mbd/bundled`, or at the top of a clone.
"""

from pathlib import Path

from setuptools import find_namespace_packages, find_packages, setup

# Where an image is built, some of them are not there.
data = ("deploy/grafana", "deploy/prometheus", "release", "production")
folders = [*find_packages(include=["pipelines", "components*"]), *(name for name in data if Path(name).is_dir())]
bundled = {f"mbd.bundled.{name.replace('/', '.')}": name.replace(".", "/") for name in folders} | {"mbd.bundled": "."}
setup(
    packages=[*find_namespace_packages("src"), *bundled],
    package_dir={"": "src", **bundled},
    script_name="setup.py",  # which is no module of the package at "."
)
