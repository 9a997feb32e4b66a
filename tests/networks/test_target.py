from __future__ import annotations

import torch
from torch import nn

from lit_rl.networks.target import Follower


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("count", torch.tensor(1.0))


def test_an_average_by_hand():
    net = Net()
    average = Follower(net)
    net.weight.data = torch.tensor([5.0, 10.0])
    net.count.fill_(7)
    average.move(0.25)
    assert average.follower.weight.tolist() == [2.0, 4.0]  # 0.75 * (1, 2) + 0.25 * (5, 10)
    assert average.follower.count.item() == 7  # running statistics are copied
    net.weight.data = torch.tensor([6.0, 0.0])
    average.move(0.25)
    assert average.follower.weight.tolist() == [3.0, 3.0]
    assert net.weight.tolist() == [6.0, 0.0]
    average.move(1.0)
    assert average.follower.weight.tolist() == [6.0, 0.0]


def test_it_has_no_gradient_and_shares_no_memory():
    net = Net()
    average = Follower(net)
    assert not average.follower.weight.requires_grad and net.weight.requires_grad
    net.weight.data.zero_()
    assert average.follower.weight.tolist() == [1.0, 2.0]


def test_running_statistics_follow_after_both_were_moved():
    net = Net()
    average = Follower(net)
    for module in (net, average.follower):
        module.double()  # replaces the buffers, as a move to another device does
    net.count.fill_(7)
    average.move(1.0)
    assert average.follower.count.item() == 7 and average.follower.count.dtype == torch.float64
