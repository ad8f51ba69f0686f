#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/executor.h"

namespace tokura {

// Whether there are processors that threads of a pool may take from nobody.
enum class Processors { kScarce, kPlenty };

// For a process with so many loops: kPlenty when this thread may use two processors for each loop,
// so that one of its pool's threads runs beside it, and two more for the peers on this machine.
Processors ProcessorsFor(size_t loops);

// Make a pool that computes on the thread that asks while that is the quickest: handing a job of
// some microseconds to another thread, and its result back, costs more than the job.
//
// A job added on the thread of one of `loops` runs on that loop, some microseconds of steps each
// time around, so that the loop still serves the network in between. A loop has one job at a time,
// and a few while their steps are quick. Everything else goes to `threads`: jobs added elsewhere or
// beyond that, those of a loop one of whose steps took long, and the next few jobs after that; and,
// where processors are plenty, those of a stream: the loop receives and sends meanwhile.
//
// The loops outlive the pool, and run none of their tasks after it is gone: as every pool, it
// leaves jobs under way to be destroyed unfinished then.
std::unique_ptr<WorkerPool> MakeLoopPool(const std::vector<Executor*>& loops,
                                         std::unique_ptr<WorkerPool> threads,
                                         Processors processors);

}  // namespace tokura
