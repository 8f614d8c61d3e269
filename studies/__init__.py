"""The paper's tables and figures, measured on synthetic or on your own data, and set beside what the paper prints.

    params.yaml    what is measured: data, seeds, variants, deletions
    cells/         the cells, one for each seed and setting: pipeline files
    cell.py        a cell is one command of `mbd`
    dvc.yaml       the studies that are made of the cells
    layout.py      where every cell lies, and how it is read
    outcome.py     what every study is: tables, figures, findings
    printed.py     the numbers of the paper
    run.py         runs cells side by side, what is up to date is left alone
    peers.py       other methods on any data; methods.py trains them, comparison.py has metrics with intervals
    sets.py        real data sets that scikit-learn ships, as files
    folds.py       settings of a backbone, compared by folds of train rows

`python -m studies` is the command behind `make study`. The other modules are one study each.
"""
