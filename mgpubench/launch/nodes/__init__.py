"""Several machines: one agent on each, which starts and ends the ranks of its own machine.

    node 0   serves a store of torch, says what is to be run, collects, and writes the results
    others   join, agree to the plan, and make their ranks of one run after the other

`link_process` is the only process that touches the store, since a call may block for 40 s when the
network is down. `link` is the parent's side of it, and judges who is still there.
"""
