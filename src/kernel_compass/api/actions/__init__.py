"""The named actions on a program's step: one module a kind, all with one contract.

`objection(action, context)` says why an action cannot be put on (`None` = it can), and
`put_on(action, context)` puts it on and returns what takes it off again.
"""
