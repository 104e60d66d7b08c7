/* A ring all-reduce of float32, message by message, for SimGrid's SMPI: what its simulator takes for it is the peer of ours.
 * smpirun -np RANKS smpi-ring BYTES; prints the virtual seconds of the slowest rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int chunk = atoi(argv[1]) / 4 / ranks, next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
  float *data = malloc((size_t)chunk * ranks * 4), *taken = malloc((size_t)chunk * 4);
  for (int i = 0; i < chunk * ranks; i++) data[i] = 1;
  double began = MPI_Wtime();
  for (int step = 0; step < 2 * (ranks - 1); step++) {
    float *out = data + (size_t)chunk * ((rank + 2 * ranks - step) % ranks);
    float *in = data + (size_t)chunk * ((rank + 2 * ranks - step - 1) % ranks);
    int folds = step < ranks - 1;
    MPI_Sendrecv(out, chunk, MPI_FLOAT, next, 0, folds ? taken : in, chunk, MPI_FLOAT, last, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; folds && i < chunk; i++) in[i] += taken[i];
  }
  double took = MPI_Wtime() - began, slowest;
  for (int i = 0; i < chunk * ranks; i++)
    if (data[i] != (float)ranks) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%.9f\n", slowest);
  MPI_Finalize();
  return 0;
}
