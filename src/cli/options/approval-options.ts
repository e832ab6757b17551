import { type AuditSinkAddress, parseSinkAddress } from "../../server/audit/audit-sink.ts";
import { withNetworkAsker } from "../../tools/network/network-asker.ts";
import type { ApprovalPolicy } from "../../tools/policy/approval.ts";
import { neverAsk } from "../../tools/policy/never-ask.ts";
import { recordApprovals } from "../../tools/policy/recorded-approvals.ts";
import type { HelpRow } from "../help/help-page.ts";
import { UsageError } from "../usage-error.ts";
import { secretFlag } from "./parse-options.ts";

/**
 * Builds the approval policy of `--rules` and `--ask`; the rules decide first. `networkAsker` asks network questions also
 * without `--ask`. Returns undefined if nothing is set.
 */
export async function approvalPolicy(
  rulesFile: string | undefined,
  asker: ApprovalPolicy | undefined,
  networkAsker?: ApprovalPolicy,
): Promise<ApprovalPolicy | undefined> {
  const policy = await loadPolicy(rulesFile, asker);
  return networkAsker ? withNetworkAsker(policy ?? neverAsk(), networkAsker) : policy;
}

async function loadPolicy(
  rulesFile: string | undefined,
  asker: ApprovalPolicy | undefined,
): Promise<ApprovalPolicy | undefined> {
  if (rulesFile === undefined) return asker;
  const { loadRulesFile } = await import("../../tools/policy/rules-file.ts");
  return loadRulesFile(rulesFile, asker);
}

export const AUDIT_OPTIONS = { audit: { type: "string" }, "audit-sink": { type: "string" } } as const;

export const AUDIT_ROWS: HelpRow[] = [
  ["--audit FILE", "append one JSON line per decision about a command; see docs/operate.md"],
  ["--audit-sink ADDRESS", "also send each audit line to unix:///PATH (datagrams) or syslog; requires --audit"],
];

interface AuditValues {
  audit?: string | undefined;
  "audit-sink"?: string | undefined;
}

/** Parses `--audit-sink`. */
export function auditSinkAddress(value: string | undefined, file: string | undefined): AuditSinkAddress | undefined {
  if (value === undefined) return undefined;
  if (file === undefined) throw new UsageError("--audit-sink requires --audit FILE");
  const address = parseSinkAddress(value);
  if (!address) throw new UsageError(`unsupported --audit-sink \`${value}\`; expected unix:///PATH or syslog`);
  return address;
}

/** Approvals that an audit log records. Disposed when no more commands run. */
interface AuditedApprovals extends Disposable {
  /** Returns the policy for commands of a principal, which is absent if this program has one user. */
  policyFor(principal?: string): ApprovalPolicy | undefined;
  /** Files that no sandboxed command may open, each with its flag. */
  secretFlags: Record<string, string>;
}

/** Records the decisions of a policy in the file of `--audit`. Without the flag it returns the policy unchanged. */
export async function auditApprovals(
  policy: ApprovalPolicy | undefined,
  { audit: file, "audit-sink": address }: AuditValues,
): Promise<AuditedApprovals> {
  const sink = auditSinkAddress(address, file);
  if (file === undefined) return { policyFor: () => policy, secretFlags: {}, [Symbol.dispose]: () => undefined };
  const { openAuditLog } = await import("../../host/audit/open-audit-log.ts");
  const log = openAuditLog(file, sink);
  return {
    policyFor: (principal) =>
      recordApprovals(policy ?? neverAsk(), {
        requireWritable: () => log.requireWritable("approval"),
        record: ({ request: { kind, argv, workdir, sandbox, tty, network }, isAllowed, reason, answer }) =>
          log.record(principal === undefined ? null : { principal }, {
            event: "approval",
            outcome: isAllowed ? "allowed" : "refused",
            ...{ reason, answer, mode: kind, argv, cwd: workdir, tty },
            sandboxed: sandbox === "none" ? undefined : true,
            target: network && `${network.host}:${network.port}`,
          }),
      }),
    secretFlags: {
      ...secretFlag(file, "--audit"),
      ...secretFlag(sink?.type === "unix" ? sink.path : undefined, "--audit-sink"),
    },
    [Symbol.dispose]: () => log.close(),
  };
}
