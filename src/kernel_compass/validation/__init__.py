"""The judge, usable alone: is a candidate right?"""
