// Predicted plans, and NCCL's own from its log, in one shape.

/** What the simulation explains for a call. */
export function predicted(world, question) {
  const { algorithm, protocol, channels } = world.explain(question);
  return { algorithm: algorithm.replace(` ${protocol}`, ""), protocol, channels };
}

export const planText = ({ algorithm, protocol, channels }) =>
  `${algorithm} ${protocol} ${channels}`;
