-- after: set_clock
CREATE OR REPLACE FUNCTION {{ db._now }}()
RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    -- The server's clock, at the time of the call; every routine asks here, once.
    -- Tests deploy with a clock that they can move; elsewhere this is inlined and costs nothing.
    -- returns: timestamptz
    -- errors: none
    -- locks: none
    -- role: internal
{% if test_clock %}
    SELECT clock_timestamp() + make_interval(secs => last_value / 1000.0) FROM {{ db._clock }};
{% else %}
    SELECT clock_timestamp();
{% endif %}
$$;
