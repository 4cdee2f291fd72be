"""Resource manager (RM): decides which job holds which resource (GSPC19 2.4).

``machine`` takes the events; ``messages`` come from jobs and hosts; ``pool`` knows what is free,
``change`` adds and removes, ``parts`` has what is remembered, ``search`` and ``gather`` find
resources, ``serve`` says whose turn it is, ``lacking`` who is worth a try, ``recall`` and ``reserve`` keep
others from starving, ``lapse`` ends grants whose job or resources are gone, ``explain`` tells people.
"""
