/** A refusal without the server's name in it, which every server makes up anew. */
export function withoutGeneration(message: string): string {
  return message.replace(/; this server is generation [0-9a-f]{8}-\d+, .*$/, "");
}
