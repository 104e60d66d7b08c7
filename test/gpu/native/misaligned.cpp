// Sums of halves through symmetric windows, straight through NCCL's C interface: all inputs are 1, so every sum is the
// number of ranks. Prints how many are not, for calls at addresses that are multiples of 4 and for others.
//
//   misaligned SIZE     one process drives all GPUs
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "../../../bench/native/peer.hpp"

static constexpr size_t windowBytes = 4 << 20;
static constexpr uint16_t one = 0x3c00;
static constexpr uint16_t powers[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};

static uint16_t* halves(float* buffer) { return reinterpret_cast<uint16_t*>(buffer); }

// Elements of all ranks' results that are not the sum.
static int wrong(Peer& peer, bool scatters, size_t count, size_t offset) {
  size_t sent = scatters ? count * peer.size : count;
  std::vector<uint16_t> ones(offset + sent, one);
  for (Rank& rank : peer.ranks) {
    CHECK(cudaSetDevice(rank.device));
    CHECK(cudaMemcpy(rank.symmetric.a, ones.data(), ones.size() * 2, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(rank.symmetric.b, 0, windowBytes));
  }
  CHECK(ncclGroupStart());
  for (Rank& rank : peer.ranks) {
    uint16_t* send = halves(rank.symmetric.a) + offset;
    uint16_t* recv = halves(rank.symmetric.b) + offset;
    if (scatters) CHECK(ncclReduceScatter(send, recv, count, ncclHalf, ncclSum, rank.comm, rank.stream));
    else CHECK(ncclAllReduce(send, recv, count, ncclHalf, ncclSum, rank.comm, rank.stream));
  }
  CHECK(ncclGroupEnd());
  peer.synchronize();
  int found = 0;
  for (Rank& rank : peer.ranks) {
    std::vector<uint16_t> sums(count);
    CHECK(cudaMemcpy(sums.data(), halves(rank.symmetric.b) + offset, count * 2, cudaMemcpyDeviceToHost));
    for (uint16_t sum : sums) found += sum != powers[peer.size];
  }
  return found;
}

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: misaligned SIZE");
  Peer peer;
  peer.size = std::atoi(argv[1]);
  peer.maxBytes = windowBytes;
  std::vector<ncclComm_t> comms(peer.size);
  CHECK(ncclCommInitAll(comms.data(), peer.size, nullptr));
  for (int rank = 0; rank < peer.size; rank++) {
    Rank opened;
    opened.rank = opened.device = rank;
    opened.comm = comms[rank];
    CHECK(cudaSetDevice(rank));
    CHECK(cudaStreamCreateWithFlags(&opened.stream, cudaStreamNonBlocking));
    peer.ranks.push_back(opened);
  }
  peer.makeWindows();
  int version = 0;
  CHECK(ncclGetVersion(&version));
  std::cout << "{\"nccl\":" << version                                           //
            << ",\"aligned\":{\"allReduce\":" << wrong(peer, false, 1024, 2)     //
            << ",\"reduceScatter\":" << wrong(peer, true, 1024, 2)               //
            << "},\"misaligned\":{\"allReduce\":" << wrong(peer, false, 1024, 1) //
            << ",\"reduceScatter\":" << wrong(peer, true, 1023, 0) << "}}\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
