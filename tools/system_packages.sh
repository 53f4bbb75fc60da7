#!/bin/sh
# Installs the Debian packages that make more of the tests run, if this is root on Debian or Ubuntu.
# Never fails: what cannot be installed is named, with what will be skipped for the lack of it.
set -u

has() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q '^install ok installed$'; }
offered() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [0-9]'; }
# The newest PostgreSQL from 15 on that is installed, else nothing.
postgres_here() {
  for dir in /usr/lib/postgresql/*/bin/initdb; do
    [ -x "$dir" ] && echo "$dir" | sed 's|/usr/lib/postgresql/\([0-9]*\)/.*|\1|'
  done | awk '$1 >= 15' | sort -n | tail -n 1
}
# The PostgreSQL that this release of Debian or Ubuntu offers, if it is 15 or newer.
postgres_offered() { apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | awk '$1 >= 15' | head -n 1; }
icu_here() { for lib in /usr/lib/*/libicuuc.so.[0-9]* /usr/lib/libicuuc.so.[0-9]* /usr/lib64/libicuuc.so.[0-9]*; do [ -e "$lib" ] && return 0; done; return 1; }
icu_offered() { apt-cache pkgnames libicu 2>/dev/null | grep -E '^libicu[0-9]+$' | sort -V | tail -n 1; }

chromium_here() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }

missing() {
  has unixodbc || echo unixodbc
  has tdsodbc || echo tdsodbc
  has pgbouncer || echo pgbouncer
  has rabbitmq-server || echo rabbitmq-server
  chromium_here || echo "chromium fonts-liberation"
  command -v spin >/dev/null || echo spin
  command -v gcc >/dev/null || command -v cc >/dev/null || echo "gcc libc6-dev"
  # Drivers for the clients of examples/, where their language is here already.
  if command -v javac >/dev/null && ! has libpostgresql-jdbc-java; then echo libpostgresql-jdbc-java; fi
  # Where there is npm, the test fetches Node's packages with it.
  if command -v node >/dev/null && ! command -v npm >/dev/null && ! has node-pg && offered node-pg; then echo node-pg; fi
  if command -v go >/dev/null && offered golang-github-lib-pq-dev; then
    has golang-github-lib-pq-dev || echo golang-github-lib-pq-dev
    has golang-github-google-uuid-dev || echo golang-github-google-uuid-dev
  fi
  has nats-server || echo nats-server
  command -v promtool >/dev/null || echo prometheus
  icu_here || icu_offered
  version=$(postgres_here)
  if [ -z "$version" ]; then
    version=$(postgres_offered)
    [ -z "$version" ] || echo "postgresql-$version"
  fi
  check="postgresql-$version-plpgsql-check"
  if [ -n "$version" ] && ! has "$check" && offered "$check"; then echo "$check"; fi
}

skipped() {
  has tdsodbc && has unixodbc || echo "  unixodbc, tdsodbc: tests on a T-SQL engine, unless Microsoft's ODBC driver is there"
  has rabbitmq-server || echo "  rabbitmq-server: the consumer of RabbitMQ"
  has pgbouncer || echo "  pgbouncer: tests behind a pooler"
  chromium_here || echo "  chromium: tests of the dashboard in a browser"
  command -v spin >/dev/null && { command -v gcc >/dev/null || command -v cc >/dev/null; } ||
    echo "  spin, gcc: the models of the protocols (tests/models)"
  has nats-server || echo "  nats-server: the relay to NATS"
  command -v promtool >/dev/null || echo "  prometheus (promtool): the alert rules, evaluated on what is told (tests/metrics)"
  icu_here || echo "  libicu: the T-SQL compile gate"
  command -v javac >/dev/null && ! has libpostgresql-jdbc-java && echo "  libpostgresql-jdbc-java: the client in Java"
  command -v node >/dev/null && ! command -v npm >/dev/null && ! has node-pg && offered node-pg &&
    echo "  node-pg: the client in Node"
  command -v go >/dev/null && offered golang-github-lib-pq-dev && ! has golang-github-lib-pq-dev &&
    echo "  golang-github-lib-pq-dev: the client in Go"
  version=$(postgres_here)
  if [ -z "$version" ]; then
    echo "  postgresql (15 or newer): tests on the system's PostgreSQL, and the plpgsql_check gate"
  elif ! has "postgresql-$version-plpgsql-check"; then
    echo "  postgresql-$version-plpgsql-check: the plpgsql_check gate"
  fi
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "system packages: not Debian or Ubuntu, so none are installed; the closing lines of the tests say what was skipped"
  exit 0
fi
if [ -z "$(skipped)" ]; then exit 0; fi
if [ "$(id -u)" -ne 0 ]; then
  echo "system packages: not root, so these are not installed: $(missing | tr '\n' ' ')"
  echo "without them the following is skipped:"
  skipped
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
export RUNLEVEL=1 # keeps the packages from starting a server
if ! apt-get update -qq >/dev/null 2>&1; then echo "system packages: apt-get update failed"; fi
wanted=$(missing | tr '\n' ' ')
if [ -n "$wanted" ]; then
  echo "system packages: installing $wanted"
  # One by one after a failure of all together, so that one that is broken does not keep the others away.
  # shellcheck disable=SC2086 # a list of words
  apt-get install -y -qq --no-install-recommends $wanted >/dev/null 2>&1 || for package in $wanted; do
    apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 || echo "system packages: $package failed"
  done
fi
left=$(skipped)
[ -z "$left" ] || printf 'system packages: skipped for want of\n%s\n' "$left"
exit 0
