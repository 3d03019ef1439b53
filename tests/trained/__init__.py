"""Checkpoints that are trained here, small and the same every time: a target and a draft for each way of speculating.

``text`` is the language they learn, ``making`` the order of the stages. Only ``text`` is light to import; the others
need torch.
"""
