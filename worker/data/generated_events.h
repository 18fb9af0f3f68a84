// A data set of sequences that needs no file: collisions, each a sequence of particles, in three classes.
//
// A collision has 30 to 90 particles, of which the 50 hardest are kept, the hardest first. Charges follow
// each other: with probability 0.8 a particle's charge follows from the one before, by a rule of the class
// (0: it stays; 1: -1, 0, 1, -1, ...; 2: the other way round), and otherwise it is drawn afresh. All else is
// drawn in the same way in each class, and so is each charge by itself: at every place the three are equally
// likely, so no sum over particles' features tells classes apart.
//
// Of a particle's 19 features most come from momentum, charge and kind: log pt, eta, cos phi, sin phi, px,
// py, pz, energy, mass, charge, one for each of five kinds (photon, electron, muon, charged hadron, neutral
// hadron), and four of its track (distances, isolation, quality), which are noise. They are scaled to
// about 1. After the last particle there are zeros.
//
// Sample i of a part (training or test) is a function of (seed, part, i) alone; a larger set begins with the
// smaller.
#ifndef CATCHMENT_WORKER_DATA_GENERATED_EVENTS_H_
#define CATCHMENT_WORKER_DATA_GENERATED_EVENTS_H_

#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace catchment {

// `options` are complete and valid.
DataSets GenerateEvents(const v1::GeneratedEvents& options);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_GENERATED_EVENTS_H_
