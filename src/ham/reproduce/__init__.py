"""The paper's numbers, from the shipped models or from models trained anew.

tables.py       the cells of Tables 1 and 2 and of the appendix, measured
complexity.py   what a timestep costs as the memory grows
retrain.py      the models trained anew, several at a time
document.py     docs/results.md
publish.py      runs become shipped models
"""
