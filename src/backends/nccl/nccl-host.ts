/** Which host NCCL takes this process to be on: ranks on different ones may use the same GPU. */
import { hostname } from "node:os";
import { bootId } from "./rendezvous/index.ts";

/** As NCCL does, goes by the variable that imitates another host, else by the machine's name and what tells its start. */
export function ncclHost(): string {
  return process.env["NCCL_HOSTID"] ?? `${hostname()}#${bootId()}`;
}

/** A text in which hosts stand, for people. */
export function withHostNames(text: string): string {
  return text.replace(/#\S*/g, "");
}
