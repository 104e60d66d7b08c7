import { partOf } from "../support/seed.ts";

/** Sizes of worlds: in `npm test` the simulation alone has all of them. */
export const someSizes: readonly number[] = partOf([1, 2, 3, 8], [1, 3]);
