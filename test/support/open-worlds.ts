/** Worlds that stay open between tests, for backends that take long to open one. */
import { type Backend, createWorld, type World } from "twinccl";
import { KeptOpen } from "./kept-open.ts";

/** At most one open world of each size. */
export class OpenWorlds extends KeptOpen<World> {
  constructor(backend: (size: number) => Backend) {
    super((size) => createWorld({ backend: backend(size), size }));
  }
}
