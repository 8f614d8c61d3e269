"""Store `share://NAME/FOLDER`: a folder of a network share, wherever this machine has mounted it ($SHARES/NAME)."""

import os
from pathlib import Path

from mbd.plugins import FolderStore, StoreScheme, StoreSettings, UsageError


class ShareStore(FolderStore):
    """A folder store that is known by the name of the share; a store of another kind implements `Store` itself."""

    def __init__(self, url: str, settings: StoreSettings) -> None:
        if "SHARES" not in os.environ:
            raise UsageError("it is not known where shares are mounted", key="store.url", value=url, hint="set SHARES")
        super().__init__(Path(os.environ["SHARES"]) / url.removeprefix("share://"))
        self.url = url


SHARE = StoreScheme(ShareStore)
