"""What pyproject.toml cannot say: the pipelines at the top of the repository are installed inside the package.

`mbd pipeline` finds them as the packages `pipelines` and `components` in the folder `mbd/bundled`, or in a clone.
"""

from setuptools import find_namespace_packages, find_packages, setup

bundled = {
    f"mbd.bundled.{name}": name.replace(".", "/") for name in find_packages(include=["pipelines", "components*"])
}
setup(packages=[*find_namespace_packages("src"), *bundled], package_dir={"": "src", **bundled})
