"""Random search over hyper-parameters, and one recipe over many seeds, on any number of machines.

    space.py      what is searched, and how a trial's settings are drawn
    plan.py       a search on disk: its trials, where each of them stands
    engine.py     the trials run by Ray Tune
    screen.py     what is shown meanwhile
    report.py     what is left at the end

Ray decides when and where a trial runs, gives it another worker when it lost its own, and stops the
hopeless ones. Everything that decides a result is ours and on disk: settings and seed of a trial
follow from (search seed, trial number), and its folder is that of an ordinary run.
"""
