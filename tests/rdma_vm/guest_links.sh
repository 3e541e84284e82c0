# shellcheck shell=bash disable=SC2154,SC2317
# A part of guest_cases.sh, in one guest with rxe0, rxe1 and siw0: links of the transport (verbs_link_test.cc), and
# their speed compared with perftest in the same guest (verbs_speed.cc).

programs=${rank_program%/*}

links() { TUTTI_VERBS=$1 "$programs/verbs_link_test"; }

speed() {
  TUTTI_VERBS=$1 "$programs/verbs_speed" | while read -r line; do note "$1: $line"; done
}

run_case 'links over rxe0' 120 links device=rxe0
run_case 'links over two rails' 120 links device=rxe0+rxe1,rails=2
run_case 'links over rxe0 by the connection manager' 120 links device=rxe0,connect=cm
run_case 'links over siw0' 120 links device=siw0
# Half of the kernel's ports for connections are TCP's.
few_ports() {
  sysctl -q net.ipv4.ip_local_port_range='40000 40127'
  TUTTI_VERBS=device=siw0 "$programs/verbs_link_test" '[few_ports]'
}
run_case 'links over siw0 beside TCP' 120 few_ports
sysctl -q net.ipv4.ip_local_port_range='32768 60999'
run_case 'speed of a link over rxe0' 120 speed device=rxe0
run_case 'speed of a link over siw0' 120 speed device=siw0
