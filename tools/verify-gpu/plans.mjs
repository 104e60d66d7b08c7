// Predicted plans, and NCCL's own from its log, in one shape.

/** The simulation's explanation of a call. */
export function predicted(world, question) {
  const { algorithm, protocol, channels } = world.explain(question);
  return { algorithm: algorithm.replace(` ${protocol}`, ""), protocol, channels };
}

export const planText = ({ algorithm, protocol, channels }) =>
  `${algorithm} ${protocol} ${channels}`;
