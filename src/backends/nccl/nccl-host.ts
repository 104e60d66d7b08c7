/** NCCL's host of this process: ranks on different ones may use the same GPU. */
import { hostname } from "node:os";
import { bootId } from "./rendezvous/index.ts";

/** As in NCCL, the variable that imitates another host, else the machine's name and the identity of its start. */
export function ncclHost(): string {
  return process.env["NCCL_HOSTID"] ?? `${hostname()}#${bootId()}`;
}

/** A text in which hosts stand, for people. */
export function withHostNames(text: string): string {
  return text.replace(/#\S*/g, "");
}
