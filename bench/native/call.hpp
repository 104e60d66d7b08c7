// What is measured, and how one call of it is issued.
#pragma once
#include <sstream>

#include "peer.hpp"

// One line of the protocol: VERB COLLECTIVE GRAPH_CALLS SYMMETRIC COUNT ITERATIONS WARMUP CHECK [TRAFFIC...]
struct Command {
  std::string verb;
  std::string collective;
  int graphCalls = 0;  // calls in one graph; 0: no graph
  int symmetric = 0;
  size_t count = 0;  // elements in nccl-tests' column `count`
  int iterations = 0;
  int warmup = 0;
  int check = 0;
  std::vector<size_t> traffic;  // row-major: the elements from each sender to each receiver, for allToAllv
};

inline Command readCommand(const std::string& line) {
  std::istringstream words(line);
  Command c;
  words >> c.verb >> c.collective >> c.graphCalls >> c.symmetric >> c.count >> c.iterations >> c.warmup >> c.check;
  if (!words) throw std::runtime_error("no command: " + line);
  for (size_t count = 0; words >> count;) c.traffic.push_back(count);
  return c;
}

inline bool isInPlace(const Command& c) { return c.collective == "allReduce" || c.collective == "broadcast"; }

// Elements of a rank's result.
inline size_t resultLength(const Command& c, int rank, int size) {
  if (c.collective == "allGather" || c.collective == "allToAll") return c.count * size;
  if (c.collective != "allToAllv") return c.count;
  size_t sum = 0;
  for (int from = 0; from < size; from++) sum += c.traffic.at(from * size + rank);
  return sum;
}

// Pairwise: in step k rank r sends to r+k and receives from r-k; blocks without elements are left out on both sides.
inline void allToAllv(const Rank& rank, const Buffers& buffers, const Command& c, int size) {
  auto traffic = [&](int from, int to) { return c.traffic.empty() ? c.count : c.traffic.at(from * size + to); };
  std::vector<size_t> sendAt(size), recvAt(size);
  for (int peer = 1; peer < size; peer++) {
    sendAt[peer] = sendAt[peer - 1] + traffic(rank.rank, peer - 1);
    recvAt[peer] = recvAt[peer - 1] + traffic(peer - 1, rank.rank);
  }
  CHECK(ncclGroupStart());
  for (int step = 0; step < size; step++) {
    int to = (rank.rank + step) % size, from = (rank.rank - step + size) % size;
    size_t sent = traffic(rank.rank, to), received = traffic(from, rank.rank);
    if (sent > 0) CHECK(ncclSend(buffers.a + sendAt[to], sent, ncclFloat, to, rank.comm, rank.stream));
    if (received > 0) CHECK(ncclRecv(buffers.b + recvAt[from], received, ncclFloat, from, rank.comm, rank.stream));
  }
  CHECK(ncclGroupEnd());
}

inline void issueOne(const Rank& rank, const Command& c, int size) {
  const Buffers& buffers = c.symmetric ? rank.symmetric : rank.plain;
  float *a = buffers.a, *b = buffers.b;
  const std::string& name = c.collective;
  if (name == "allReduce") CHECK(ncclAllReduce(a, a, c.count, ncclFloat, ncclSum, rank.comm, rank.stream));
  else if (name == "broadcast") CHECK(ncclBroadcast(a, a, c.count, ncclFloat, 0, rank.comm, rank.stream));
  else if (name == "allGather") CHECK(ncclAllGather(a, b, c.count, ncclFloat, rank.comm, rank.stream));
  else if (name == "reduceScatter") CHECK(ncclReduceScatter(a, b, c.count, ncclFloat, ncclSum, rank.comm, rank.stream));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  else if (name == "allToAll") CHECK(ncclAlltoAll(a, b, c.count, ncclFloat, rank.comm, rank.stream));
#endif
  else if (name == "allToAll" || name == "allToAllv") allToAllv(rank, buffers, c, size);
  else throw std::runtime_error("no such collective: " + name);
}

// A group around it only where this process drives more than one rank.
inline void issue(Peer& peer, const Command& c) {
  bool isGroup = peer.ranks.size() > 1;
  if (isGroup) CHECK(ncclGroupStart());
  for (Rank& rank : peer.ranks) issueOne(rank, c, peer.size);
  if (isGroup) CHECK(ncclGroupEnd());
}
