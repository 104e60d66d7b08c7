/* Open MPI's all-reduce of float32 over all ranks, and its all-to-allv: time of each call until the slowest rank is done.
 * mpirun -n RANKS mpi-all-reduce allreduce|alltoallv BYTES CALLS; prints one line of milliseconds, one number a call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that one rank sends to another: as bench/peers/all-to-allv.ts deals them, rank r of n begins with weight r + 1. */
static int share(int bytes, int ranks, int from, int to) {
  int weights = ranks * (ranks + 1) / 2;
  int part = (int)((long long)bytes * ((to + from) % ranks + 1) / weights);
  return part - part % 4;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  int rank, ranks, bytes = atoi(argv[2]), calls = atoi(argv[3]);
  int reduces = strcmp(argv[1], "allreduce") == 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int *send_counts = calloc(ranks, sizeof(int)), *send_at = calloc(ranks, sizeof(int));
  int *recv_counts = calloc(ranks, sizeof(int)), *recv_at = calloc(ranks, sizeof(int));
  int received = 0, sent = 0;
  for (int peer = 0; peer < ranks; peer++) {
    send_counts[peer] = share(bytes, ranks, rank, peer);
    recv_counts[peer] = share(bytes, ranks, peer, rank);
    send_at[peer] = sent;
    recv_at[peer] = received;
    sent += send_counts[peer];
    received += recv_counts[peer];
  }
  int length = received > bytes ? received : bytes;
  float *send = malloc(bytes), *recv = malloc(length);
  for (int i = 0; i < bytes / 4; i++) send[i] = (float)(rank + 1);
  memset(recv, 0, length);
  for (int call = 0; call < calls; call++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    if (reduces) MPI_Allreduce(send, recv, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
      MPI_Alltoallv(send, send_counts, send_at, MPI_BYTE, recv, recv_counts, recv_at, MPI_BYTE,
                    MPI_COMM_WORLD);
    double took = MPI_Wtime() - began, slowest;
    MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%s%.6f", call == 0 ? "" : " ", slowest * 1e3);
  }
  if (rank == 0) printf("\n");
  if (reduces && recv[bytes / 4 - 1] != (float)(ranks * (ranks + 1) / 2)) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
