"""The workflow of the stored journals: it goes on when there is GSPC_STORED_GO in the environment."""

import os
import time

from gspc_trio import Net, Workflow


def make(number):
    return {"number": number, "bytes": bytes([number]) * 3, "pair": (number, 0.5), "name": f"n{number}"}


def wait_for(variable):
    while variable not in os.environ:
        time.sleep(0.01)
    return variable


def check(made, gone):
    del gone
    return [made["number"], len(made["bytes"]), made["pair"][1], made["name"]]


def workflow(n: int = 4):
    net = Net("stored")
    net.input("number")
    net.input("variable")
    net.place("made")
    net.place("gone")
    net.output("results")
    net.transition("make", make, inputs=["number"], outputs=["made"])
    net.transition("wait", wait_for, inputs=["variable"], outputs=["gone"])
    net.transition("check", check, inputs=["made"], reads=["gone"], outputs=["results"])
    return Workflow(net, {"number": list(range(n)), "variable": ["GSPC_STORED_GO"]})
