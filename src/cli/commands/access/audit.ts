import { isDigest } from "../../../server/audit/audit-chain.ts";
import { verifyAuditLog } from "../../../server/audit/verify-audit-log.ts";
import { type Command, defineCommand, defineSubcommands, UsageError } from "../../command.ts";
import type { HelpPage } from "../../help/help-page.ts";

const HELP: HelpPage = {
  usage: ["SUBCOMMAND [OPTIONS] [ARGUMENTS]"],
  details: "`procwire serve --audit FILE` writes the audit log. docs/operate.md describes its fields and guarantees.",
  options: {},
  examples: [
    ["procwire audit verify audit.jsonl", "check the chain of a file"],
    ["procwire audit verify audit.jsonl.1 audit.jsonl", "a rotated log, oldest file first"],
    ["procwire audit verify --sink /var/log/auth.log audit.jsonl", "also find a cut end"],
  ],
};

const VERIFY_HELP: HelpPage = {
  usage: ["[OPTIONS] FILE..."],
  details: `Checks the sequence numbers and digests of an audit log. A changed, missing, moved or duplicated line is an error. The
    files are those of one log, oldest first; earlier files may be absent. A cut end, and a change of the last line, are found
    only by comparison with a recorded digest or with the second sink.`,
  options: {
    Comparison: [
      ["--last-digest DIGEST", "require the line with this digest, as an earlier verification printed it"],
      ["--sink FILE", "require the last line of the file of the second sink (`serve --audit-sink`)"],
    ],
  },
  examples: [
    ["procwire audit verify audit.jsonl", "print the number of lines and the last digest"],
    ["procwire audit verify audit.jsonl.1 audit.jsonl", "a rotated log"],
    ["procwire audit verify --sink /var/log/auth.log audit.jsonl", "compare with the lines that syslog received"],
  ],
  exitCodes: "0 if every line is valid, 1 otherwise; the first invalid line is on stderr, with its number",
};

const verify: Command = defineCommand("audit verify", VERIFY_HELP, {
  options: { "last-digest": { type: "string" }, sink: { type: "string" } },

  async run({ "last-digest": lastDigest, sink: sinkFile }, files) {
    if (files.length === 0) throw new UsageError("give at least one FILE");
    if (lastDigest !== undefined && !isDigest(lastDigest))
      throw new UsageError(`--last-digest takes 64 hexadecimal digits, got \`${lastDigest}\``);
    const result = await verifyAuditLog({ files, lastDigest, sinkFile });
    if (result.type === "invalid") {
      process.stderr.write(`${result.file}:${result.line}: ${result.reason}\n`);
      return 1;
    }
    const { lines, firstSeq, last } = result;
    process.stdout.write(`ok: ${lines} lines, seq ${firstSeq} to ${last.seq}, last digest ${last.digest}\n`);
    return 0;
  },
});

export const command: Command = defineSubcommands("audit", HELP, { verify });
