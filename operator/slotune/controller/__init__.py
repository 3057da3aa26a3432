"""The operator: observe the cluster, plan without touching it, act on the plan.

What decides is pure and takes the time as an argument: a plan, the words of a status, the events of a transition. What
talks to the API server decides nothing. The search, its verdicts and its reports live below and know no cluster.
"""
