"""Damage to a share of the rows, to see how far a model degrades.

| modality | raw (`raw`)                                  | vectors only (`vectors`)                                 |
| -------- | -------------------------------------------- | -------------------------------------------------------- |
| visual   | Gaussian blur and salt-and-pepper of frames  | blur along the vector; entries set to their extremes     |
| audio    | noise at a given signal-to-noise ratio       | noise at this ratio in each row                          |
| text     | spelling errors; tokens change places nearby | entries taken from another row and changing places       |
| others   |                                              | as audio                                                 |

Which rows are damaged depends on the seed and the number of rows only; what happens to a modality depends on the seed
and on this modality only, so that leaving out another one changes nothing.
"""

from mbd.features.corruption.raw import corrupt_frames, corrupt_text, corrupt_waveform
from mbd.features.corruption.vectors import corrupt, corrupted_rows

__all__ = ["corrupt", "corrupt_frames", "corrupt_text", "corrupt_waveform", "corrupted_rows"]
